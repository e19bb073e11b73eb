"""What the user's documents ask for, judged against the code: docs/specification.md (`make docs`).

`row` says what a row is and which verdicts there are. `behavior`, `gap_analysis`, `implementation`, `master` and
`performance` have the rows of one document each, `table` all of them. `page` writes the page.
"""
