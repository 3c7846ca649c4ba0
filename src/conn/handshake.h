/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_HANDSHAKE_H
#define SNT_CONN_HANDSHAKE_H

#include "conn/mac.h"
#include "conn/message.h"
#include "conn/plan.h"

/*
 * One end of a connection, without I/O: no clock, socket, device, allocation or
 * randomness inside, so that every sequence of events can be tested.
 *
 *	input()     a message has arrived
 *	output()    the next message to be sent, if there is one
 *	timer()     time has passed
 *	action()    what to do now; the answers are
 *	            accept(), probe_qps(), probed(), card(), connected(), and fail() to all
 *
 * The carrier between the two ends delivers messages in order, once, and intact, or
 * fails, and reports that by lost(). A message that does not fit the state is the
 * peer's fault and ends the connection, with one exception: END always fits.
 *
 * Invariants:
 *	- in setup something is awaited: a message, an answer to an action, or the end of
 *	  the setup time, which comes in any case
 *	- once over, for whatever reason, it stays so; if the peer does not know why, END
 *	  tells it, and nothing else is sent any more
 *	- both ends take the same plan, or one of them is over
 *	- with a secret, only HELLO, WELCOME and END are parsed before their tag has proved
 *	  that the peer knows it, in this very connection
 */

enum snt__handshake_state {
	SNT__HS_HELLO, /* connector: awaits WELCOME; acceptor: awaits HELLO */
	SNT__HS_OFFER, /* awaits ANSWER; awaits OFFER */
	SNT__HS_ASK,   /* acceptor: awaits accept() */
	SNT__HS_PROBE_QPS, /* awaits probe_qps(); acceptor: or, before that, PROBE or PLAN */
	SNT__HS_PROBE,	 /* connector: awaits PROBING */
	SNT__HS_PROBING, /* awaits probed(); connector: and PROBED */
	SNT__HS_PLAN,	 /* awaits card() */
	SNT__HS_CARD,	 /* awaits CARD; awaits READY */
	SNT__HS_CONNECT, /* connector: awaits connected() */
	SNT__HS_UP,
	SNT__HS_OVER,
};

enum snt__handshake_action {
	SNT__DO_NOTHING,
	SNT__DO_ASK, /* accept or refuse what is in `theirs` */
	SNT__DO_PROBE_QPS, /* make probe QPs for probe.probe_qp[]; acceptor: and connect them */
	SNT__DO_PROBE, /* connector: connect probe QPs with peer_probe.probe_qp[], and try */
	SNT__DO_MAKE,	 /* make the QP by `plan`; acceptor: and connect it */
	SNT__DO_CONNECT, /* connector: connect it with peer_card */
	SNT__DO_UP,	 /* it is connected */
	SNT__DO_LEAVE,	 /* the peer has said BYE, and we have not */
	SNT__DO_END,	 /* it is over: error, text */
};

struct snt__handshake {
	/* Set by init. */
	bool connects;
	bool plain; /* no messages are sent or taken: handshake_plain.c */
	struct snt__hello hello;
	struct snt__offer ours; /* for an acceptor: from accept() on */
	const void *secret;
	size_t secret_length;
	uint64_t deadline; /* of the setup */

	uint8_t state;
	uint8_t action;
	uint16_t sending; /* a bit for each type of message that is due */
	bool keyed;	  /* tags are sent and expected */
	bool proven;	  /* a tag of the peer's was right */
	bool probing;	  /* acceptor in PROBE_QPS: a round is in progress */
	bool probed_ours, probed_theirs;
	bool bye_sent, bye_received;
	uint64_t session;
	uint64_t sent, received; /* tagged messages */
	uint8_t key_out[SNT__MAC_SIZE], key_in[SNT__MAC_SIZE];
	uint64_t ping_at;
	uint64_t ping_interval;

	struct snt__hello peer_hello;
	struct snt__offer theirs;
	struct snt__trials trials;
	uint8_t batch[SNT__PAIRS_MAX];	/* trials of this round */
	uint8_t result[SNT__PAIRS_MAX]; /* and our verdicts on them */
	uint16_t mtu;
	struct snt__probe probe;      /* ours, of this round */
	struct snt__probe peer_probe; /* theirs */
	struct snt__plan plan;
	struct snt_card peer_card;
	size_t card_length;
	uint8_t card[SNT_CARD_PACKED_MAX];

	/* The reason of the end. */
	int error;
	bool by_peer;
	char text[256];
	struct snt__end end; /* to be sent, or as received */
};

struct snt__handshake_opts {
	bool connects;
	uint64_t identity;
	const uint8_t *nonce;		/* SNT__NONCE_SIZE */
	const struct snt__offer *offer; /* connector */
	const void *secret;		/* the caller's memory; NULL: none */
	size_t secret_length;
	uint64_t deadline;
};

void snt__handshake_init(struct snt__handshake *hs,
			 const struct snt__handshake_opts *opts);

/*
 * handshake_plain.c: connections without messages. An acceptor begins with ASK. Both then go
 * on to PLAN, where the QP is to be made, CARD, where the peer's answer is awaited, and UP.
 */
void snt__handshake_init_plain(struct snt__handshake *hs, bool connects,
			       uint64_t deadline);
void snt__handshake_go_on(struct snt__handshake *hs, enum snt__handshake_state state);
/* It is over, by one end or the other. @error: 0 or a negative errno */
void snt__handshake_disconnected(struct snt__handshake *hs, int error, const char *text,
				 bool by_peer);

void snt__handshake_input(struct snt__handshake *hs, const void *bytes, size_t length,
			  uint64_t now);

/* Returns its length, or 0: there is none. @bytes: SNT__MESSAGE_MAX */
size_t snt__handshake_output(struct snt__handshake *hs, uint8_t *bytes);

static inline bool snt__handshake_has_output(const struct snt__handshake *hs)
{
	return hs->sending;
}

/* A PING is due. */
static inline bool snt__handshake_wants_ping(const struct snt__handshake *hs)
{
	return hs->sending >> SNT__MESSAGE_PING & 1;
}

/* Instead of a PING the carrier may ask the peer's device or kernel, which answers even
 * if its program does not. True: now is the time. */
static inline bool snt__handshake_take_ping(struct snt__handshake *hs)
{
	bool due = snt__handshake_wants_ping(hs);

	hs->sending &= (uint16_t) ~(1u << SNT__MESSAGE_PING);
	return due;
}

void snt__handshake_timer(struct snt__handshake *hs, uint64_t now);

/* When to call timer(); UINT64_MAX: never. */
uint64_t snt__handshake_due(const struct snt__handshake *hs);

enum snt__handshake_action snt__handshake_action(struct snt__handshake *hs);

/* The carrier has failed. @error: a negative errno; a text that says how, or NULL. */
void snt__handshake_lost(struct snt__handshake *hs, int error, const char *text);

/* Answers to actions. */
void snt__handshake_accept(struct snt__handshake *hs, const struct snt__offer *offer);
/* @probe_qp: probe.count of them: QP number and PSN, or a verdict */
void snt__handshake_probe_qps(struct snt__handshake *hs,
			      const struct snt__probe_qp *probe_qp);
/* @verdict: probe.count of them */
void snt__handshake_probed(struct snt__handshake *hs, const uint8_t *verdict);
void snt__handshake_card(struct snt__handshake *hs, const struct snt_card *card);
void snt__handshake_connected(struct snt__handshake *hs, uint64_t now);

/* Everything that was posted has been acknowledged: tell the peer. */
void snt__handshake_bye(struct snt__handshake *hs);

/* Our side ends it. @error: a negative errno for our own program; @data may be NULL. */
void snt__handshake_end(struct snt__handshake *hs, enum snt__end_code code, int error,
			const char *text, const void *data, size_t data_length);

/* Agreed on from OFFER and ANSWER on: the lesser of the two ends' values. */
static inline uint64_t snt__handshake_detect_ns(const struct snt__handshake *hs)
{
	uint64_t ms = hs->ours.detect_ms < hs->theirs.detect_ms ? hs->ours.detect_ms
								: hs->theirs.detect_ms;

	return ms * UINT64_C(1000000);
}

static inline bool snt__handshake_over(const struct snt__handshake *hs)
{
	return hs->state == SNT__HS_OVER;
}

#endif
