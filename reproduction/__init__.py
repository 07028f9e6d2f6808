"""The reproduction of the paper, separate from the library: protocol, runs, pages, studies and commands."""
