"""Token ids in, token ids out. Knows nothing of HTTP or scheduling. Importing this package does not import torch."""
