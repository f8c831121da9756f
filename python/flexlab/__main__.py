"""The program flexlab: `flexlab`, or `python -m flexlab`. It takes the place of this process."""
import os
import pathlib
import signal
import sys


def main():
    program = pathlib.Path(__file__).with_name("flexlab")
    if not program.exists():
        sys.exit(f"flexlab: this package has no program ({program}): install a wheel, which has one (docs/python.md)")
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and a program would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    os.execv(program, ["flexlab", *sys.argv[1:]])


if __name__ == "__main__":
    main()
