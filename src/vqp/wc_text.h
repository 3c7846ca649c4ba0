/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_WC_TEXT_H
#define SNT_VQP_WC_TEXT_H

#include <sennit/cq.h>

#include "dev/gid.h"
#include "dev/select.h"

struct snt_cq;
struct snt_ctx;
struct snt_loop;
struct snt_qp;

/* "WRITE", "RECV"; "WR" for numbers that are not opcodes. */
const char *snt__opcode_name(unsigned opcode);

/* "QP 17", or "shared receive queue" for 0: a receive that no message has taken. */
#define SNT__OWNER_TEXT 24
const char *snt__owner_text(uint32_t num, char owner[SNT__OWNER_TEXT]);

/* "soft0 to 127.0.0.3": a lane's device, and its peer's as far as it has a GID. */
#define SNT__LANE_TEXT (SNT__DEVICE_NAME + SNT__GID_TEXT + 4)
const char *snt__lane_text(const struct snt_qp *qp, unsigned lane,
			   char text[SNT__LANE_TEXT]);

/*
 * A completion as text, in the buffer of snt_wc_text(). The QP is looked up by its
 * number, since it may be gone by now, among those in the loop or of the CQ; either may
 * be NULL.
 */
const char *snt__wc_text(struct snt_ctx *ctx, const struct snt_loop *loop,
			 const struct snt_cq *cq, const struct snt_wc *wc);

/* The same buffer, with any sentence. */
const char *snt__text(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
