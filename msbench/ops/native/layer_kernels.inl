// What surrounds a scan, for one instruction set: included once for each, inside a namespace and with BYTES set.

#include "lanes.inl"
#include "bank.inl"
#include "bank_backward.inl"
#include "norm.inl"

#undef INLINE
#undef BYTES
