"""Files of `torchdevice verify` from people who have a device: what they change in the tables, and what they prove."""
