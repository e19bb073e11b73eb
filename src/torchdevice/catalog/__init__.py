"""The catalogue: every public function of the installed torch, how TorchDevice treats it, and what was measured.

    surface     what is public: functions, classes, methods, properties, settings
    signatures  how each is called, which parameters are devices, what role a device plays
    treatment   what TorchDevice does with it, computed from tables that the caller passes in
    measured    the result of a verification run for one name
    status      the status, computed from the measurements
    entries     one row per name with all of the above
    store       the measurements, in `data`, and the notes
    markdown    rows as a page
    changes     what another torch version added, removed or changed

Nothing here imports the tables of `answers`, `fallback` or `virtual`: `cli.catalog` collects them. `tools/catalog` in
the repository (`make catalog`) measures and writes docs/catalog.
"""
