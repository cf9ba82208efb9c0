"""The page kit: what a page consists of (document), HTML and Markdown writers, and the canvas of pictures."""
