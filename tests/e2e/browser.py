"""A headless Chromium for the pages that mxt writes: opened from disk, watched for errors, driven by keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # a page from disk has no business on the network: whatever it asks for fails, and is a console error
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


class Browser:
    """One tab, kept for the whole session. driver: selenium's, for what is not here."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open_page(
        self,
        page: Path,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        fragment: str = "",
        media: str = "",
    ) -> None:
        """Open a file in a window of that size (CSS pixels; below 500 as on a phone), with an empty console.

        media: "print" shows what would be printed.
        """
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.driver.get("about:blank")
        self.console_errors()
        self.driver.get(page.resolve().as_uri() + (f"#{fragment}" if fragment else ""))

    def console_errors(self) -> list[str]:
        """What the console said at level SEVERE or WARNING since the last call: empty for a good page."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def screenshot(self, path: Path, *, full: bool = False) -> Path:
        """A PNG of the window; full: of the whole page."""
        import base64

        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def press(self, *keys: str) -> None:
        """Key presses on whatever has the focus. Names as in selenium's Keys ("TAB", "ARROW_DOWN"), or text."""
        from selenium.webdriver import ActionChains, Keys

        actions = ActionChains(self.driver, duration=0)
        for key in keys:
            actions.send_keys(getattr(Keys, key, key) if key.isupper() and len(key) > 1 else key)
        actions.perform()

    def js(self, script: str, *args: Any) -> Any:
        """The value of an expression in the page."""
        return self.driver.execute_script(f"return ({script})", *args)

    def text(self, selector: str) -> str:
        """What is written in the first element that fits; "" where there is none."""
        found = self.js("(document.querySelector(arguments[0]) || {}).innerText || ''", selector)
        assert isinstance(found, str)
        return found

    def focused(self) -> str:
        """The element that has the focus: its tag, and #id where it has one."""
        script = "(e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : ''))(document.activeElement)"
        found = self.js(script)
        assert isinstance(found, str)
        return found

    def sideways(self) -> int:
        """Pixels by which the page is wider than its window: 0 where nobody must scroll sideways."""
        return int(self.js("document.documentElement.scrollWidth - window.innerWidth"))

    def command(self, name: str, **fields: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, fields)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Skips the test where Chromium or its driver is missing."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if not chromium or not driver_path:
        pytest.skip("no chromium with chromedriver here (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
    # selenium would look for drivers, and count its users, on the network; a proxy is not for 127.0.0.1
    os.environ.update(SE_OFFLINE="true", SE_AVOID_STATS="true", NO_PROXY="127.0.0.1,localhost")
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    driver.set_page_load_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
