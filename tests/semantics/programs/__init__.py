"""A file per subject. Every public function that takes `d`, and every row of a table `ROWS`, is a program."""
