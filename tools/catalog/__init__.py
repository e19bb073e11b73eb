"""The catalogue's measurements, and everything that is written from them.

run                                 all names on plain torch and on three hosts: `make catalog`
worker, pool                        a process that makes calls, and who watches it
databases                           calls from torch's own databases
guess, vocabulary, exemplars        calls that are guessed from signatures
written, written_*                  calls that are written by hand
reasons                             why nothing can be run for a name here
bench, bench_groups, compare        the values that calls are made of; whether two results are the same
mlx, mlx_pairs, mlx_names, values   the same in MLX: the pairs, and whether they agree
results                             what was measured, in results.json, and the part of it that is shipped
rows                                the catalogue as the repository's pages have it
proof                               whether a parameter that is a device is safe
gaps, gap_rows                      what does not do what plain torch does, and what is known of it
pages, codemap                      docs/catalog, docs/gaps.md, the map in docs/architecture.md
publish                             writes all of that
torches                             what torch changed from release to release: docs/torch-changes.md
"""
