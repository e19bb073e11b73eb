"""The policy: which device a request becomes, as pure functions. Nothing here patches, logs or keeps state
(except `override`, which is the process-wide switch that the policy itself defines)."""
