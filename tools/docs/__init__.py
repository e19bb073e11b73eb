"""Pages that are printed from tables of the code (`make docs`), and the site of all pages (`make site`)."""
