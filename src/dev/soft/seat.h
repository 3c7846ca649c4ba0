/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SEAT_H
#define SNT_DEV_SOFT_SEAT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Several processes may share an address. Each then has a seat there: the upper bits of
 * its QP numbers, and of its ids of connections, so that any packet shows which of the
 * processes it is for.
 */

#define SNT__SEAT_BITS 6
#define SNT__SEATS     (1u << SNT__SEAT_BITS)

/* How far the seat is shifted. */
#define SNT__SEAT_IN_QPN (24 - SNT__SEAT_BITS)
#define SNT__SEAT_IN_ID	 (32 - SNT__SEAT_BITS)

/* The seat of a device; one that does not share has none, and numbers of any kind. */
struct snt__seat {
	bool taken;
	uint8_t number;
};

static inline uint8_t snt__seat_of_qpn(uint32_t qpn)
{
	return (uint8_t)(qpn >> SNT__SEAT_IN_QPN & (SNT__SEATS - 1));
}

/* A random number becomes one of the seat's. */
static inline uint32_t snt__seat_mark(struct snt__seat seat, uint32_t number,
				      unsigned shift)
{
	if (!seat.taken)
		return number;
	return (number & ~((SNT__SEATS - 1) << shift)) | (uint32_t)seat.number << shift;
}

#endif
