/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_BURST_H
#define SNT_DEV_SOFT_BURST_H

#include <sys/uio.h>
#include "dev/soft/qp.h"

/*
 * Packets that stand for several.
 *
 * Where nothing cuts messages into packets, on the way from one device to another in the
 * memory of one host, a packet may have a payload of many times the MTU. It is what its
 * packets would have been, all at once: its PSN is that of the first, its headers say
 * whether it begins and ends a message, and it takes as many numbers as there are MTUs in
 * it. It is executed as a whole or not at all, and acknowledged as a whole.
 *
 * So both ends count as they do on a wire, and a QP may change from one way to the other
 * in the middle of a message. A burst that is sent again may be cut differently: of one
 * that was executed in part, the rest is.
 */

/* Where payload is that was not sent along. */
struct snt__soft_source {
	/* Copies what begins at that offset to all of `to`, in order. False: it is gone. */
	bool (*copy)(const struct snt__soft_source *source, uint64_t offset,
		     const struct iovec *to, unsigned count);
};

/**
 * snt__soft_input_burst - a packet has arrived that may be longer than the MTU
 * @header: BTH and extension headers; nobody else can change them
 * @payload: may change while it is read; meaningless with a @source
 * @source: NULL if the payload is there
 *
 * Otherwise as snt__soft_input(). Returns false if the packet makes no sense at all.
 */
bool snt__soft_input_burst(struct snt__soft_device *device,
			   const struct snt__soft_path *path,
			   uint8_t header[SNT__WIRE_HEADER_MAX], size_t header_length,
			   const uint8_t *payload, size_t payload_length,
			   const struct snt__soft_source *source, uint64_t now);

/* The way to an address carries so many bytes in a packet from now on; 0: MTUs. With the
 * lock. */
void snt__soft_device_set_reach(struct snt__soft_device *device,
				const uint8_t target[16], uint32_t bytes);

/*
 * Inside
 */

/* How many packets may go as one to the peer that a QP is being connected with. */
uint32_t snt__soft_burst_reach(const struct snt__soft_qp *qp);

/* What is left of a request whose first `behind` packets came before. False: nothing. */
bool snt__soft_burst_rest(struct snt__soft_qp *qp,
			  const struct snt__wire_packet *packet, uint32_t behind,
			  struct snt__wire_packet *rest_out);

/* Copies the payload of the packet that is being input. False: it is gone. */
bool snt__soft_payload(const struct snt__soft_device *device,
		       const struct snt__wire_packet *packet, const struct iovec *to,
		       unsigned count);

/* The same to the next bytes of an SGE list, whose cursor moves only with DONE. BROKEN:
 * a key does not grant it. */
enum snt__soft_verdict snt__soft_payload_scatter(const struct snt__soft_device *device,
						 const struct snt__wire_packet *packet,
						 const struct ibv_pd *pd,
						 const struct ibv_sge *sge,
						 unsigned sge_count,
						 struct snt__soft_cursor *cursor);

#endif
