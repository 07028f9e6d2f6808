"""What is shown of the runs: scores -> tables, charts and sentences -> one page of HTML, or the pages of the docs."""
