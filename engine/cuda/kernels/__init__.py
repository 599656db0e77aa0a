"""Triton kernels. Each is a function of tensors; what they belong to is decided elsewhere.

All of them treat every token, or every window, on its own and in one fixed order of additions, so
that results are batch-invariant, and whether a token is checked as
part of a draft or decoded alone.
"""
