/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_CM_KIT_H
#define SENNIT_TESTS_CM_KIT_H

#include "dev/soft/cm.h"

/*
 * Two connection managers and the smallest wire between them: messages arrive at once
 * and in order, unless the test wants otherwise. Time passes only when nothing is on
 * the wire. After every step all that always holds is checked; whatever fails here
 * fails the test.
 */

#define KIT_PORT 7000

/* The ends: which one connects, and which one listens. */
enum {
	A,
	B,
	ENDS
};

struct kit_frame {
	struct kit_frame *next;
	unsigned to;
	unsigned index; /* among all that were ever sent, from 0 */
	struct snt__soft_path path;
	uint8_t mad[SNT__CM_MAD_SIZE];
	struct snt__cm_message message;
};

enum kit_fate {
	KIT_PASS,
	KIT_DROP,
	KIT_TWICE,
	KIT_LATE, /* when nothing else is on the wire, and some time later */
};

struct kit {
	struct snt__soft_cm *cm[ENDS];
	struct snt__soft_cm_channel channel[ENDS];
	struct snt__soft_cm_listener *listener; /* of B */
	struct snt__cm_id listener_id;
	uint64_t now;
	uint64_t random;
	unsigned rung[ENDS]; /* how often a channel was woken */
	struct kit_frame *first, **last;
	struct kit_frame *late;
	uint64_t late_at;
	unsigned frames;
	unsigned sent[ENDS][SNT__CM_KINDS];		  /* by sender */
	struct snt__cm_message seen[ENDS][SNT__CM_KINDS]; /* the last of each kind */
	enum kit_fate (*fate)(struct kit *kit, const struct kit_frame *frame);
	unsigned chosen; /* for the above */
	unsigned chosen_kind;
	unsigned chosen_from;
	bool ipv6;
};

extern const uint8_t kit_gid[2][ENDS][16]; /* [1]: of IPv6 */

/* NULL: the defaults. B listens at KIT_PORT. */
struct kit *kit_open(const struct snt__soft_cm_config *config, bool ipv6);
void kit_close(struct kit *kit);

/* Delivers all there is; time stands still. */
void kit_pump(struct kit *kit);
/* The same, and lets so much time pass. */
void kit_run_for(struct kit *kit, uint64_t ns);
/* Until nothing happens any more. */
void kit_run(struct kit *kit);
/* Gives a message to an end. @path NULL: as if from the other. */
void kit_inject(struct kit *kit, unsigned to, const struct snt__soft_path *path,
		const struct snt__cm_message *message);

/* A QP's part, with a number of its own, and data that begins with a word. */
struct snt__cm_param kit_param(uint32_t qpn, const char *word);

/* The next event of an end, which must be of that type. */
struct snt__cm_event kit_expect(struct kit *kit, unsigned end,
				enum snt__cm_event_type type);
void kit_expect_none(struct kit *kit, unsigned end);
/* All is over, and forgotten: after letting go, and as much time as it takes. */
void kit_expect_empty(struct kit *kit);

/* Steps of a connection; each takes the events that belong to it. */
struct snt__soft_cm_connection *kit_connect(struct kit *kit, uint32_t qpn);
struct snt__soft_cm_connection *kit_request(struct kit *kit);
void kit_accept(struct kit *kit, struct snt__soft_cm_connection *connection,
		uint32_t qpn);
void kit_establish(struct kit *kit, struct snt__soft_cm_connection *connection);
/* All of these: [A] and [B]. */
void kit_connected(struct kit *kit, struct snt__soft_cm_connection *pair[ENDS]);

static inline unsigned kit_sent(const struct kit *kit, unsigned end,
				enum snt__cm_kind kind)
{
	return kit->sent[end][kind - SNT__CM_REQ];
}

static inline const struct snt__cm_message *kit_seen(const struct kit *kit,
						     unsigned end,
						     enum snt__cm_kind kind)
{
	return &kit->seen[end][kind - SNT__CM_REQ];
}

#endif
