/* SPDX-License-Identifier: MIT */
#include "vqp/qp_num.h"

#include <stdatomic.h>
#include <stdbool.h>

#define NUMBERS 0xffffffu
#define BITS	32

/* One bit per number in use; only pages that numbers have reached are touched. */
static atomic_uint in_use[NUMBERS / BITS + 1];
static atomic_uint next;

static bool claim_qp_num(uint32_t num)
{
	uint32_t bit = 1u << num % BITS;

	return !(atomic_fetch_or(&in_use[num / BITS], bit) & bit);
}

uint32_t snt__qp_num_take(void)
{
	for (uint32_t tries = 0; tries < NUMBERS; tries++) {
		uint32_t num = 1 + atomic_fetch_add(&next, 1) % NUMBERS;

		if (claim_qp_num(num))
			return num;
	}
	return 0;
}

void snt__qp_num_release(uint32_t num)
{
	atomic_fetch_and(&in_use[num / BITS], ~(1u << num % BITS));
}
