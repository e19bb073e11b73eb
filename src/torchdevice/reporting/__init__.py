"""Reports of what was changed, as text, HTML and JSON. Works on records only."""
