"""torch's operator database on virtual devices, against the CPU: `make conformance`."""
