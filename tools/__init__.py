"""What builds, proves and measures TorchDevice, and is no part of it: none of this is in the wheel.

    catalog        calls every public name of torch; writes the catalogue's data and pages (`make catalog`)
    docs           pages that are printed from tables of the code (`make docs`), and the site (`make site`)
    specification  what the user's documents ask for, judged against the code (`make docs`)
    conformance    torch's operator database on virtual devices (`make conformance`)
    upstream       PyTorch's own tests on virtual devices (`make upstream`)
    mac_reports    what people with Macs reported, on a virtual one (`make mac-reports`)
    verified       reads files of `torchdevice verify` from people who have a device
    realworld      programs that we did not write, in every mode (`make realworld`)
    hardening      fuzzing, soaking, sanitizers, and the record of their figures (`make fuzz`, `soak`, `sanitize`)
    instructions   instructions per call of small operators, counted by an emulator
    versions       every supported torch in an environment of its own (`make matrix`)
    distributed    torch's own distributed tests on what stands for NCCL (`make distributed`)

Run from the root of the repository: `python -m tools.catalog.run`. Tests import from here; nothing in `src` does.
"""
