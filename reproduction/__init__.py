"""The reproduction of the paper, beside the library: protocol, run, pages, studies, and the commands of all that."""
