"""The shell of every page that mxt writes: one self-contained file, opened from disk without a network."""

from __future__ import annotations

# The content policy makes the promise true: the browser stops a page that tries to load anything.
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="generator" content="mxt">
"""

# Colours by meaning; the picture of a graph uses the same names, and brings them along.
COLOURS = """\
:root { --paper: #ffffff; --sheet: #f6f7f9; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0;
  --accent: #0b5cad; --shade: #1b1f2459;
  --hit: #2f7d4f; --executed: #0b6bcb; --stale: #9a6700; --failed: #c4262e; --skipped: #8250a8;
  --refused: #a33a7a;
  --waiting: #6e7781; --source: #6e7781; --series-1: #0b6bcb; --series-2: #c2571a; --series-3: #2f7d4f;
  --series-4: #8250a8; --series-5: #6e7781 }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14171b; --sheet: #1d2126; --ink: #e6e9ed;
  --quiet: #9aa4af; --line: #363d46; --accent: #6cb2ff; --hit: #5bbf85; --executed: #5aa9ff; --stale: #dba63a;
  --failed: #ff7b75; --refused: #f08cc4; --skipped: #c297e8; --waiting: #8b949e; --source: #8b949e;
  --shade: #9aa4af8c; --series-1: #5aa9ff; --series-2: #f0935a; --series-3: #5bbf85;
  --series-4: #c297e8; --series-5: #9aa4af } }
"""

_STYLE = """\
* { box-sizing: border-box }
html { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100% }
body { margin: 0 auto; max-width: 72rem; padding: 1.25rem clamp(0.8rem, 3vw, 2rem) 3rem }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line) }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem }
p { margin: .4rem 0 .8rem; max-width: 46rem }
a { color: var(--accent) }
code, pre, kbd, .mono { font: .875em/1.45 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere }
pre { background: var(--sheet); padding: .7rem .9rem; border-radius: 6px; overflow-x: auto;
  overflow-wrap: normal }
kbd { border: 1px solid var(--line); border-bottom-width: 2px; border-radius: 4px; padding: 0 .35em }
.quiet { color: var(--quiet) }
.scroll { overflow-x: auto; max-width: 100% }
/* where something is cut off, its edge lies in a shadow: the covers scroll along, the shadows stay */
.scroll, .picture { background: linear-gradient(90deg, var(--paper) 40%, transparent) left / 3rem 100% local,
    linear-gradient(270deg, var(--paper) 40%, transparent) right / 3rem 100% local,
    linear-gradient(90deg, var(--shade), transparent) left / 1rem 100% scroll,
    linear-gradient(270deg, var(--shade), transparent) right / 1rem 100% scroll;
  background-repeat: no-repeat }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0;
  border-bottom: 1px solid var(--line) }
th { font-weight: 600; color: var(--quiet); white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .4rem 0 1rem }
dt { color: var(--quiet) }
dd { margin: 0; overflow-wrap: anywhere }
figure { margin: 1rem 0 }
svg { max-width: 100% }
button, input, select { font: inherit; color: inherit; background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; padding: .25rem .6rem; min-height: 2.2rem }
button { cursor: pointer }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0 } dd { margin-bottom: .5rem } }
@media print { html { font-size: 10pt; background: #fff; color: #000 } body { max-width: none; padding: 0 }
  h2, figure, table { break-inside: avoid } .screen { display: none !important } }
"""


def page(title: str, body: str, *, script: str = "", style: str = "") -> str:
    """One self-contained HTML document in the house style.

    body: HTML whose texts went through `escape`. script, style: plain, trusted, put inline; a script runs
    at the end of the body.
    """
    own = f"{style}\n" if style else ""
    tail = f"<script>\n{script}\n</script>\n" if script else ""
    return (
        f"{_HEAD}<title>{escape(title)}</title>\n<style>\n{COLOURS}{_STYLE}{own}</style>\n</head>\n"
        f"<body>\n{body}\n{tail}</body>\n</html>\n"
    )


# what neither HTML nor XML may hold; a file name may have any of it
_TABLE = {
    **{n: f"\\x{n:02x}" for n in (*range(9), 11, 12, *range(14, 32), 127)},
    0xFFFE: "\\ufffe",
    0xFFFF: "\\uffff",
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    ord("'"): "&#39;",
}


def escape(text: object) -> str:
    """Text for HTML and SVG, in elements and in quoted attributes; what no page may hold becomes \\x1b."""
    return str(text).encode("utf-8", "backslashreplace").decode().translate(_TABLE)


def script_json(value: object) -> str:
    """JSON that can stand inside a <script>: nothing in it ends the element."""
    import json

    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
