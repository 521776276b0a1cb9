"""Operations of cuBLASLt and cuDNN: their algorithms, the choice among them by time, and the file of choices."""
