/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_QP_NUM_H
#define SNT_VQP_QP_NUM_H

#include <stdint.h>

/*
 * Numbers of virtual QPs: 1 to 2^24 - 1, as cards carry them, and unique in the
 * process. They are given out in turn, so that a number is not reused soon.
 *
 * Thread: any.
 */

/* 0 if all are in use. */
uint32_t snt__qp_num_take(void);
void snt__qp_num_release(uint32_t num);

#endif
