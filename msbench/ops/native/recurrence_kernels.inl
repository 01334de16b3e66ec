// The recurrences for one instruction set: included once for each, inside a namespace and with BYTES set.

#include "lanes.inl"
#include "linear.inl"
#include "poles.inl"
#include "lti.inl"
#include "lti_backward.inl"

#undef INLINE
#undef BYTES
