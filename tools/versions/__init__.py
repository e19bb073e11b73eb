"""TorchDevice on every torch that it supports: `matrix` installs and runs, `page` writes docs/versions.md."""
