"""Checks of a real accelerator against the CPU and against what TorchDevice predicts: `torchdevice verify`.

parts         the table of parts: what each asks, its module, its time
worker        the process that runs the checks of a part; setting sets it up, machine describes it
runner        starts these processes, and goes on after a crash, a hang or an interruption
coherence, answers, wrong_values, steps, fallbacks, refusals, operators    the parts
samples       torch's sample inputs on two devices; predictions  what the tables say of an operator
findings, record    what a check found, and the file of a run
summary, page       the same in words and as HTML
"""
