"""What the tests of flexlab.torch share: skipping without torch, and running a file without pytest."""
import sys


def need_torch():
    """Leaves the file out, with a message, where torch or flexlab is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        if "pytest" in sys.modules:
            import pytest
            pytest.skip("torch is not installed", allow_module_level=True)
        print("skipped: torch is not installed")
        sys.exit(77)  # a test left out, for ctest


def skip(reason):
    if "pytest" in sys.modules:
        import pytest
        pytest.skip(reason)
    print(f"skipped: {reason}")


def raises(kind, text, function, *args, **kwargs):
    """The call raises an exception of that kind whose message has the text."""
    try:
        function(*args, **kwargs)
    except kind as error:
        assert text in str(error), f"{error!r} does not have {text!r}"
        return
    raise AssertionError(f"nothing raised, expected {kind.__name__} with {text!r}")


def main(names):
    """Runs the functions test_* of a module."""
    for name, function in list(names.items()):
        if name.startswith("test_"):
            function()
            print(f"{name}: passed", flush=True)
