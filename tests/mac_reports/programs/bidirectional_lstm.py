import torch

torch.manual_seed(123)
words = torch.rand(3, 1, 2)
model = torch.nn.LSTM(input_size=2, hidden_size=2, bidirectional=True)
expected = model(words)[0]
torch.testing.assert_close(model.to("mps")(words.to("mps"))[0].cpu(), expected, rtol=1e-4, atol=1e-5)
