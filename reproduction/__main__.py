"""In a clone of the project, ``python -m reproduction COMMAND`` does the same as ``closecall COMMAND``."""

import sys

from closecall.__main__ import main

if __name__ == "__main__":
    if sys.argv[1:] in ([], ["--help"]):
        from reproduction.app import built

        built()(["--help"], prog_name="python -m reproduction")
    main()
