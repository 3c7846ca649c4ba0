/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_NULL_H
#define SENNIT_TESTS_NULL_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <sennit/ctx.h>

/*
 * The null device: the cheapest thing that can stand under sennit, so that a
 * benchmark measures sennit and nothing else.
 *
 * It moves no bytes and looks at no key, but it does what no driver can leave out:
 * it writes each WR into its send queue in the form that hardware would read, 64
 * bytes of control, remote address and data; receives likewise. CQEs hold what
 * hardware knows, QP number and place in the queue, from which a poll finds the
 * wr_id. A posted WR has completed when the
 * post returns; its CQE is there if it was signalled. Receives complete when
 * null_recv() says so. Queues have the depth that was asked for, rounded up to a
 * power of two. A slot is free again when the CQE of its own or of a later WR has
 * been polled. CQ overruns are not noticed: size CQs for all that can be
 * outstanding.
 *
 * There are no completion channels, async events or SRQs. QPs need no
 * connection: any modify_qp() is good that names a state.
 */

struct null_device;

/**
 * null_device_create - make a device
 * @name: copied; must be unique in a context
 *
 * Returns: NULL without memory.
 */
struct null_device *null_device_create(const char *name);

/* All that was made from the device must be gone. NULL is legal. */
void null_device_destroy(struct null_device *device);

/* The device as snt_ctx_opts::adopted takes it; valid as long as the device. */
struct snt_adopted null_adopted(struct null_device *device);

/**
 * null_recv - complete the oldest receive as if a write with immediate came in
 * @imm: in network byte order, as in a WR
 *
 * Returns: 0; -ENOENT if no receive is posted.
 */
int null_recv(struct ibv_qp *qp, uint32_t imm, uint32_t byte_len);

/* Refuses sends with ENOMEM, as if the queue were full, until called with false. Nothing
 * may be in the queue. */
void null_refuse_sends(struct ibv_qp *qp, bool refuse);

#endif
