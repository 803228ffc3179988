"""Fragmentation-aware placement on its own trace: the published inflation protocol, beside the published figures.

`arms` says what is compared, `pod_lists` reads a lake, `runs` fills clusters up, `published` reads what others found;
`tables` and `bars` judge. Placing is `pipelines.studies.fragmentation.inflation`'s. Called by `taut experiment fgd`.
"""
