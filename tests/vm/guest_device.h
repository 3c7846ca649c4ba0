/* SPDX-License-Identifier: MIT */
#ifndef GUEST_DEVICE_H
#define GUEST_DEVICE_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sennit/sennit.h>

/*
 * The guest's first device in a context of ours, and plain QPs on it, for tests of how
 * these are connected.
 */
struct guest_device {
	struct snt_ctx *ctx;
	struct snt_device *device;
	const struct snt_control *control;
	struct sockaddr_in address; /* of the GID that is used; no port */
};

extern struct guest_device guest;

void guest_open(void);
int guest_close(void);

struct guest_qp {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

void guest_qp_create(struct guest_qp *qp);
/* It need not have been created. */
void guest_qp_destroy(struct guest_qp *qp);
/* A message arrives, of the right length and with its bytes. */
void guest_qp_send(struct guest_qp *from, struct guest_qp *to);

#endif
