"""Factorization of KKT matrices: ordering, symbolic analysis, LDLᵀ in tiles, fronts for large matrices, LU with pivoting."""
