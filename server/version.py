"""Which kvell this is."""

from importlib.metadata import PackageNotFoundError, version


def kvell_version() -> str:
    try:
        return version("kvell")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
