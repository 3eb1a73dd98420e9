"""What is made of results for people and other programs: tables as text, Markdown, LaTeX and Parquet; plots."""
