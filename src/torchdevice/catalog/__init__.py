"""The catalogue: every public function of the installed torch, how TorchDevice treats it, and what was measured.

    surface     what is public: functions, classes, methods, properties, settings
    signatures  how each is called, which parameters are devices, what role a device plays
    treatment   what TorchDevice does with it, computed from tables that the composer hands in
    measured    what a verification run found out about a name
    status      what all of that amounts to; a status is computed, never claimed
    entries     one row per name, all of the above
    store       what was measured, in `data`, and the notes
    markdown    rows as a page
    changes     what another torch added, removed or changed

Nothing here imports the tables of its neighbours (`answers`, `fallback`, `virtual`): `cli.catalog` gathers them. Who
measures, and who writes docs/catalog, is `tools/catalog` in the repository (`make catalog`).
"""
