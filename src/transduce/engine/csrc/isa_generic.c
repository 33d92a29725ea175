/* Plain C, for processors without a file of their own */
#define ISA 0
#define NAME generic
#define NAME_TEXT "generic"
#include "kernels.h"
