/* SPDX-License-Identifier: MIT */
/* See lookup.h. On other machines the two functions stay the C library's. */
#if defined(__x86_64__)

	.text

/* The arguments survive the question, for the function that is jumped to. */
.macro ask_first name, next
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	.ifc \name, dlsym
	xorl %edx, %edx
	.endif
	call snt__preload_lookup
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jz 1f
	ret
1:	jmp *\next(%rip)
	.cfi_endproc
	.size \name, . - \name
.endm

	ask_first dlsym, snt__preload_next_dlsym
	ask_first dlvsym, snt__preload_next_dlvsym

#endif

	.section .note.GNU-stack, "", @progbits
