"""The policy decides which device a request becomes. It consists of pure functions: they do not patch or log.

The only state is the CPU override, a process-wide switch that the policy itself defines.
"""
