/* SPDX-License-Identifier: MIT */
/*
 * See lookup.h. Each function asks first, keeping its arguments for the next library's, to which
 * it jumps if the answer is NULL. On other machines dlsym() and dlvsym() stay the C library's.
 */
#if defined(__x86_64__)

	.text

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

#elif defined(__aarch64__)

	.text

.macro ask_first name, next
	.globl \name
	.type \name, %function
\name:
	.cfi_startproc
	hint #34 /* bti c */
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	.ifc \name, dlsym
	mov x2, xzr
	.endif
	bl snt__preload_lookup
	mov x9, x0
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	.cfi_restore 29
	.cfi_restore 30
	cbz x9, 1f
	mov x0, x9
	ret
1:	adrp x16, \next
	ldr x16, [x16, #:lo12:\next]
	br x16
	.cfi_endproc
	.size \name, . - \name
.endm

	ask_first dlsym, snt__preload_next_dlsym
	ask_first dlvsym, snt__preload_next_dlvsym

#endif

#if defined(__linux__) && defined(__ELF__)
	.section .note.GNU-stack, "", %progbits
#endif
