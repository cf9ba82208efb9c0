"""The report of `snapfm report`: one HTML page and one Markdown page from benchmark records."""
