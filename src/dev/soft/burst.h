/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_BURST_H
#define SNT_DEV_SOFT_BURST_H

#include <sys/uio.h>
#include "dev/soft/qp.h"

/*
 * Bursts: packets that stand for several.
 *
 * Between two devices in the memory of one host nothing limits a packet to the MTU, so
 * that its payload may be many times as long. It equals the packets that it replaces,
 * all at once: its PSN is that of the first, its headers say whether it begins and ends
 * a message, and it takes as many numbers as there are MTUs in it. It is executed as a
 * whole or not at all, and acknowledged as a whole.
 *
 * So both ends count as they do on a wire, and a QP may switch between ring and wire in
 * the middle of a message. A burst that is sent again may be cut differently: if a part
 * of it was executed before, only the rest is executed.
 */

/* The payload of a packet, where it was not sent along. */
struct snt__soft_source {
	/* Copies from that offset to all of `to`, in order. False: the payload is
	 * gone. */
	bool (*copy)(const struct snt__soft_source *source, uint64_t offset,
		     const struct iovec *to, unsigned count);
};

/**
 * snt__soft_input_burst - a packet has arrived that may be longer than the MTU
 * @header: BTH and extension headers; no other process can change them
 * @payload: may change while it is read; meaningless with a @source
 * @source: NULL if the payload is at @payload
 *
 * Otherwise as snt__soft_input(). Returns false if the packet is malformed.
 */
bool snt__soft_input_burst(struct snt__soft_device *device,
			   const struct snt__soft_path *path,
			   uint8_t header[SNT__WIRE_HEADER_MAX], size_t header_length,
			   const uint8_t *payload, size_t payload_length,
			   const struct snt__soft_source *source, uint64_t now);

/* From now on a packet to this seat of an address may carry so many bytes; 0: an MTU.
 * With the lock held. */
void snt__soft_device_set_reach(struct snt__soft_device *device,
				const uint8_t target[16], unsigned seat,
				uint32_t bytes);

/*
 * Internal
 */

/* How many packets may go as one to the peer that a QP is being connected with. */
uint32_t snt__soft_burst_reach(const struct snt__soft_qp *qp);

/* Reduces a request to what follows its first `behind` packets, which came before.
 * False: nothing does. */
bool snt__soft_burst_rest(struct snt__soft_qp *qp,
			  const struct snt__wire_packet *packet, uint32_t behind,
			  struct snt__wire_packet *rest_out);

/* Copies the payload of the packet that is being input. False: the payload is gone. */
bool snt__soft_payload(const struct snt__soft_device *device,
		       const struct snt__wire_packet *packet, const struct iovec *to,
		       unsigned count);

/* The same to the next bytes of an SGE list, whose cursor moves only with DONE. BROKEN:
 * a key does not permit it. */
enum snt__soft_verdict snt__soft_payload_scatter(const struct snt__soft_device *device,
						 const struct snt__wire_packet *packet,
						 const struct ibv_pd *pd,
						 const struct ibv_sge *sge,
						 unsigned sge_count,
						 struct snt__soft_cursor *cursor);

#endif
