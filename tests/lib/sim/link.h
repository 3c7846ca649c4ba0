/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_LINK_H
#define SNT_DEV_SOFT_SIM_LINK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * One direction of a cable: what comes in at one end comes out at the other later,
 * never, twice or damaged. A link has a sender's queue in front of it; what does
 * not fit is lost.
 *
 * Packets keep their order, however much jitter there is, except for those that
 * reordering hits. With `mix_ns` only packets to the same QP keep their order: each
 * QP's packets are held back for a time of its own, which changes now and then, so
 * that whatever one QP sends last may arrive before what another sent first.
 */
struct snt__sim_link_opts {
	uint32_t mbps;	      /* megabits of IP packets in a second; 0: no limit */
	uint32_t queue_bytes; /* waiting for the link; 0: no limit */
	uint32_t delay_ns;
	uint32_t jitter_ns; /* is added, at most */
	/* How many of a million packets. */
	uint32_t loss;
	uint32_t duplicate;
	uint32_t corrupt;
	uint32_t reorder;
	uint32_t
		late_ns; /* reordered packets and copies come later by so much at most */
	uint32_t mix_ns;
};

/* Why a packet was lost. */
enum snt__sim_drop {
	SNT__SIM_DROP_NONE,
	SNT__SIM_DROP_LOSS,    /* bad luck */
	SNT__SIM_DROP_QUEUE,   /* no room in front of a link */
	SNT__SIM_DROP_CUT,     /* the link is cut */
	SNT__SIM_DROP_DEAD,    /* the device or its host is dead */
	SNT__SIM_DROP_ROUTE,   /* no device has this address */
	SNT__SIM_DROP_CORRUPT, /* a check at the receiver failed */
	SNT__SIM_DROP_MEMORY,  /* the simulation itself has none left */
	SNT__SIM_DROPS
};

#define SNT__SIM_FLOWS 64

struct snt__sim_link {
	struct snt__sim_link_opts opts;
	uint64_t random;
	uint64_t mix;	    /* the key of how flows are held back */
	uint64_t free_at;   /* when all that was accepted is on the wire */
	uint64_t remainder; /* of the division by mbps, so that no time gets lost */
	uint64_t last[SNT__SIM_FLOWS]; /* arrivals; only the first without mixing */
	bool cut;
};

/* What a link does with a packet. */
struct snt__sim_fate {
	enum snt__sim_drop drop;
	uint64_t arrival;
	uint64_t arrival_copy; /* UINT64_MAX: there is no copy */
	uint64_t damage;       /* dice for what gets damaged; 0: nothing */
};

void snt__sim_link_init(struct snt__sim_link *link,
			const struct snt__sim_link_opts *opts, uint64_t stream);

struct snt__sim_fate snt__sim_link_carry(struct snt__sim_link *link, uint64_t now,
					 uint32_t length, uint32_t flow);

/* Flips one to three bits, or some of 32 in a row: what a CRC of 32 bits always
 * finds in packets of this size, wherever it covers them. */
void snt__sim_damage(uint8_t *bytes, uint32_t length, uint64_t dice);

#endif
