"""`python -m mxt`, and the file that mxtw starts."""

import sys


def _complete_path() -> None:
    """mxtw starts Python with -I -S: reading site-packages' .pth files and the user's own folders would
    cost 3 ms and let them change what runs. What a virtual environment needs of it is these lines."""
    import os

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.prefix = sys.exec_prefix = os.path.dirname(os.path.dirname(sys.executable))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    sys.path += [f"{sys.prefix}/lib/{version}/site-packages", here]


if __name__ == "__main__":
    try:
        if sys.flags.no_site:
            _complete_path()
        from mxt.cli.main import main

        code = main()
    except KeyboardInterrupt:  # before main was ready for it, or while it said so
        code = 8
    sys.exit(code)
