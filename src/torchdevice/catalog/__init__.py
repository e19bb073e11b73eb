"""The catalogue: every public function of the installed torch, how TorchDevice treats it, and what was measured.

    surface     what is public: functions, classes, methods, properties, settings
    signatures  how each is called, which parameters are devices, what role a device plays
    treatment   what TorchDevice does with it, computed from tables that the composer hands in
    mlx         the same in MLX; mlx_pairs are the pairs
    proof       for parameters that are devices and are not patched: why nothing has to be
    status      what all of that amounts to; a status is computed, never claimed
    entries     one row per name, all of the above
    store       the measured results and the notes, in `data`
    pages, gaps, codemap   what is printed from the rows: docs/catalog, docs/gaps.md, the map in docs/architecture.md
    changes     what another torch added, removed or changed

Nothing here imports the tables of its neighbours (`answers`, `fallback`, `virtual`): `cli.catalog` gathers them.
The measuring itself is `make catalog` (tests/catalog).
"""
