"""The method for laws too dense to write out: products with J, Jᵀ and Hessians."""
