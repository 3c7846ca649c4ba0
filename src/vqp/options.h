/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_OPTIONS_H
#define SNT_VQP_OPTIONS_H

#include <sennit/qp.h>

struct snt_ctx;
struct snt_device;

/* In each queue of a lane, beyond what the program posts: one marker when the lane
 * dies and one when the QP is closed. */
#define SNT__MARKERS 2

/* 20 bits. */
#define SNT__FLOW_LABEL_MAX 0xfffffu

void snt__qp_opts_default(struct snt_qp_opts *opts);

/* Checks each option by itself; -EINVAL names the first that is out of range. */
int snt__qp_opts_check(const struct snt_ctx *ctx, const struct snt_qp_opts *opts);

/* Checks all of them against what a device can do. */
int snt__qp_opts_fit(const struct snt_qp_opts *opts, const struct snt_device *device);

/* Applies what `change` has set, if it may be changed now. */
int snt__qp_opts_change(struct snt_qp_opts *opts, const struct snt_qp_opts *change,
			int connected);

#endif
