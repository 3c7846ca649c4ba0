/* SPDX-License-Identifier: MIT */
#ifndef RDMACM_FAKE_H
#define RDMACM_FAKE_H

#include <rdma/rdma_cma.h>

/*
 * A librdmacm that a test makes up, as verbs_fake.h is a libibverbs: events are what the
 * test says, each call can fail (tests/lib/fault.h), and what was called is remembered.
 * Destroying or migrating an id whose events were not all acknowledged, which would block for
 * ever, ends the program.
 */

/* What happens to the id next; of a request, to the listener. */
struct fake_news {
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	int status;
	struct rdma_conn_param param;
	/* A request comes over this device and port; NULL: the id's. */
	struct ibv_context *context;
	uint8_t port;
};

void fake_cm_reset(void);
void fake_cm_push(const struct fake_news *news);

/* Which device addresses lead to. */
void fake_cm_route(struct ibv_context *context, uint8_t port);

/* Ids and channels that exist. */
unsigned fake_cm_live(void);

/* The id that was made last. */
struct rdma_cm_id *fake_cm_last(void);

/* How often a call has succeeded, by name without rdma_. */
unsigned fake_cm_calls(const char *name);

/* What connect or accept were called with last, and set_option for the timeout. */
extern struct rdma_conn_param fake_cm_param;
extern uint8_t fake_cm_timeout;
/* What RDMA_OPTION_ID_AFONLY was set to; -1: not set. */
extern int fake_cm_one_family;

#endif
