#include "textflag.h"

// func prefetch(s *slot)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ s+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET
