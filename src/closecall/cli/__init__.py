"""The command ``closecall``."""

try:
    from .exits import BAD_REQUEST, COMPLETE, FAILED, INCOMPLETE
    from .main import app, main
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] not in ("typer", "rich", "click"):
        raise
    raise SystemExit(
        f'the closecall command needs more packages ({error}): pip install "closecall[bench,plots]"'
    ) from None

__all__ = ["BAD_REQUEST", "COMPLETE", "FAILED", "INCOMPLETE", "app", "main"]
